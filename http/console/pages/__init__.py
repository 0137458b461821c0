"""The pages of the console, one file each: `PAGES` are shown, `FORMS` do something."""
