"""One reader per format: prefixes of lines, clocks, error files, paths. None knows another's."""
