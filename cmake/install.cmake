# Filled in with the package.
