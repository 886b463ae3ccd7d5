"""Tables and figures; each module has a function `show`."""
