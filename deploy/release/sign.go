package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// checksums is the file that tells what every file of a release must be; its
// signature stands beside it, with the ending .sig.
const checksums = "SHA256SUMS"

// signed returns the signature of data under the Ed25519 key of a file: a private
// key in PEM, as openssl genpkey writes it. What openssl pkeyutl -rawin verifies is
// what comes out, 64 bytes.
func signed(data []byte, keyFile string) ([]byte, error) {
	text, err := os.ReadFile(keyFile) //nolint:gosec // whoever makes the release names it
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key in PEM; openssl genpkey -algorithm ed25519 makes one", keyFile)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s holds no private key in PKCS 8", keyFile) // the cause may tell of the key
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another kind; openssl genpkey -algorithm ed25519 makes one", keyFile)
	}
	return ed25519.Sign(private, data), nil
}
