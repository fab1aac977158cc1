"""p(x | z): the choices."""
