"""One module for each file format; `tensorferry.files.format` finds them by looking into this folder."""
