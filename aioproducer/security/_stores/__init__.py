"""Trust stores and key stores: PEM, PKCS12 and JKS, told apart by their bytes."""
