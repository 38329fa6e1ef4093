"""The words of written jobs (tracks silent and calm): their programs, layouts and launchers.

A made job is a list of `Line`s in the job's own time. A program writes what ranks print, a
launcher writes how the job ends, a layout turns the lines into the files that somebody would have.
"""
