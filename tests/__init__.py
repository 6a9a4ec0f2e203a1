"""A package, because a dependency ships one of the same name, which would be imported instead."""
