package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// certificates has the files of the API server, whose certificate is self-signed.
type certificates struct {
	serving, servingKey       string
	accountKey, accountPublic string
}

func (tb *testbed) makeCertificates(t *testing.T) certificates {
	t.Helper()
	files := certificates{tb.path("api.crt"), tb.path("api.key"), tb.path("accounts.key"), tb.path("accounts.pub")}
	key := makeKey(t, files.servingKey)
	self := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(48 * time.Hour),
		IPAddresses:           []net.IP{net.ParseIP(apiHost), net.ParseIP("127.0.0.1")},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	must(t, err)
	writePEM(t, files.serving, "CERTIFICATE", der)

	accounts := makeKey(t, files.accountKey)
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	must(t, err)
	writePEM(t, files.accountPublic, "PUBLIC KEY", public)
	return files
}

func makeKey(t *testing.T, file string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	writePEM(t, file, "EC PRIVATE KEY", der)
	return key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
