"""Message sites of other projects' sources, and what of them the catalog covers."""
