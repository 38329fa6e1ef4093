"""What a site has confirmed of earlier jobs: similar incidents, and how often verdicts were right.

`place` says where the file is, and is all that runs where none exists; `store` is the file;
`features` says what of a diagnosis is compared; `recall` finds similar incidents; `site` corrects
the confidence.
"""
