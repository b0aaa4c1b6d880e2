# Filled in with the text crate.
