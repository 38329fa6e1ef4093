"""JSON Schema files of all that is printed as JSON, and what makes them from the dataclasses.

The files are data for other programs; nothing here reads them. New keys may join a schema of the
same name, so none forbids them.
"""
