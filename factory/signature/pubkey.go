package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"hash"
	"strings"
)

// asymmetric tells whether the webhook's secret is the sender's public key.
func (s *Scheme) asymmetric() bool {
	return s.Algorithm == Ed25519 || s.Algorithm == ECDSAP256 || s.Algorithm == RSASHA256
}

// digest makes the hash of the signed text; Ed25519 signs the text itself.
func (a Algorithm) digest() func() hash.Hash {
	if a == Ed25519 {
		return func() hash.Hash { return &message{} }
	}
	return sha256.New
}

// message is a hash.Hash that returns its input unchanged.
type message struct{ data []byte }

func (m *message) Write(p []byte) (int, error) { m.data = append(m.data, p...); return len(p), nil }
func (m *message) Sum(b []byte) []byte         { return append(b, m.data...) }
func (m *message) Reset()                      { m.data = m.data[:0] }
func (m *message) Size() int                   { return len(m.data) }
func (m *message) BlockSize() int              { return 1 }

// minRSABits is the length of the shortest RSA key that is accepted.
const minRSABits = 2048

func (s *Scheme) publicKey(secret string) (func(signature, sum []byte) bool, error) {
	der, err := s.keyBytes(secret)
	if err != nil {
		return nil, err
	}
	if s.Algorithm == Ed25519 && len(der) == ed25519.PublicKeySize {
		return ed25519Verifier(der)
	}
	unsuitable := &SecretError{"is not the " + string(s.Algorithm) + " public key that " + s.Name + " wants (" + string(s.Key) + ")"}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, unsuitable
	}
	switch key := parsed.(type) {
	case ed25519.PublicKey:
		if s.Algorithm == Ed25519 {
			return ed25519Verifier(key)
		}
	case *ecdsa.PublicKey:
		if s.Algorithm == ECDSAP256 && key.Params().BitSize == 256 {
			return func(signature, sum []byte) bool { return ecdsa.VerifyASN1(key, sum, signature) }, nil
		}
	case *rsa.PublicKey:
		if s.Algorithm == RSASHA256 && key.N.BitLen() >= minRSABits {
			return func(signature, sum []byte) bool {
				return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum, signature) == nil
			}, nil
		}
	}
	return nil, unsuitable
}

func ed25519Verifier(key ed25519.PublicKey) (func(signature, message []byte) bool, error) {
	if smallOrder(key) {
		return nil, &SecretError{"is no key of a sender's: anybody can sign for it"}
	}
	return func(signature, message []byte) bool {
		return len(signature) == ed25519.SignatureSize && ed25519.Verify(key, message, signature)
	}, nil
}

// smallOrder tells whether the key is one of the few points of small order, such as 32
// zero bytes. For one message in eight or more, the multiple of such a point is the neutral
// element. Then that element and a zero are a valid signature, made without a private key.
// RFC 8032 does not refuse such keys.
func smallOrder(key ed25519.PublicKey) bool {
	trivial := make([]byte, ed25519.SignatureSize)
	trivial[0] = 1
	for message := range byte(128) {
		if ed25519.Verify(key, []byte{message}, trivial) {
			return true
		}
	}
	return false
}

// privateKey reads the key that belongs to a sender's public key: PKCS #8, or, for Ed25519,
// the seed (perhaps followed by the public key) in the row's encoding.
func (s *Scheme) privateKey(secret string) (crypto.Signer, error) {
	for _, prefix := range []string{"whsk_"} { // what a v1a signer keeps, beside whpk_
		secret = strings.TrimPrefix(secret, prefix)
	}
	der, err := s.keyBytes(secret)
	if err != nil {
		return nil, err
	}
	unsuitable := &SecretError{"is not an " + string(s.Algorithm) + " private key: " + s.Name + " is verified with the public key and signed with the private one"}
	if s.Algorithm == Ed25519 {
		switch len(der) {
		case ed25519.SeedSize:
			return ed25519.NewKeyFromSeed(der), nil
		case ed25519.PrivateKeySize:
			return ed25519.NewKeyFromSeed(der[:ed25519.SeedSize]), nil
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, unsuitable
	}
	switch key := parsed.(type) {
	case ed25519.PrivateKey:
		if s.Algorithm == Ed25519 {
			return key, nil
		}
	case *ecdsa.PrivateKey:
		if s.Algorithm == ECDSAP256 && key.Params().BitSize == 256 {
			return key, nil
		}
	case *rsa.PrivateKey:
		if s.Algorithm == RSASHA256 && key.N.BitLen() >= minRSABits {
			return key, nil
		}
	}
	return nil, unsuitable
}

// keyBytes decodes a key of an asymmetric scheme; PEM is always understood.
func (s *Scheme) keyBytes(secret string) ([]byte, error) {
	if block, _ := pem.Decode([]byte(secret)); block != nil {
		return block.Bytes, nil
	}
	for _, prefix := range s.KeyPrefixes {
		secret = strings.TrimPrefix(secret, prefix)
	}
	secret = strings.TrimSpace(secret)
	if secret == "" {
		return nil, &SecretError{"is empty"}
	}
	var key []byte
	var err error
	if s.Key == KeyHex {
		key, err = hex.DecodeString(secret)
	} else {
		key, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(secret, "="))
	}
	if err != nil { // err quotes a byte of the secret
		return nil, &SecretError{"is not " + string(s.Key) + ", as " + s.Name + " wants its key; copy it whole from the sender"}
	}
	return key, nil
}
