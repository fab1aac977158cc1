"""q(z | x): the choices."""
