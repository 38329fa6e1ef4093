"""Reports: a Diagnosis as text for a terminal, an issue or a chat. None looks at the timeline."""
