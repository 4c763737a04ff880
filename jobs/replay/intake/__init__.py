"""The first step of a chunk: it finds the log order of the records. All later steps read blocks that are in this order.

The order inside a slice is given by the order of appending, or by columns of the log. Where the files are in this order
already, the blocks are those of the files. Where they are not, tasks sort the records of a slice into new files.
"""
