"""Decision providers: one pure module per kind, one transport that does the HTTP."""
