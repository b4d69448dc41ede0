#!/bin/sh
# Writes the golden JKS stores beside this file with Java's keytool; they are valid until 2126.
set -e
cd "$(dirname "$0")"
rm -f key.jks other_password.jks trust.jks ca.pem
days=36500
keytool -genkeypair -storetype JKS -keystore key.jks -storepass storepass -keypass storepass -alias client \
    -keyalg EC -groupname secp256r1 -dname CN=client -validity $days -noprompt
keytool -genkeypair -storetype JKS -keystore other_password.jks -storepass storepass -keypass "pässword" -alias client \
    -keyalg EC -groupname secp256r1 -dname CN=client -validity $days -noprompt
keytool -exportcert -rfc -keystore key.jks -storepass storepass -alias client -file ca.pem
keytool -importcert -storetype JKS -keystore trust.jks -storepass storepass -alias ca -file ca.pem -noprompt
