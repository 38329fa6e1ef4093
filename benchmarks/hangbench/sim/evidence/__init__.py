"""What a simulated job leaves behind, in the forms of real tools."""
