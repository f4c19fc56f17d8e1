"""Where the resident engine holds rows: values as codes, relations as indexes of bitmaps."""
