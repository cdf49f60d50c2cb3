package cluster

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
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// certificates has the files of the API server, whose certificate is self-signed.
type certificates struct {
	serving, servingKey       string
	accountKey, accountPublic string
}

// makeCertificates writes the files of an API server with some addresses into dir.
func makeCertificates(t testing.TB, dir string, hosts ...string) certificates {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	files := certificates{in("api.crt"), in("api.key"), in("accounts.key"), in("accounts.pub")}
	key := makeKey(t, files.servingKey)
	self := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(48 * time.Hour),
		IPAddresses:           []net.IP{net.ParseIP("127.0.0.1")},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		self.IPAddresses = append(self.IPAddresses, net.ParseIP(host))
	}
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	harness.Must(t, err)
	writePEM(t, files.serving, "CERTIFICATE", der)

	accounts := makeKey(t, files.accountKey)
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	harness.Must(t, err)
	writePEM(t, files.accountPublic, "PUBLIC KEY", public)
	return files
}

func makeKey(t testing.TB, file string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Must(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	harness.Must(t, err)
	writePEM(t, file, "EC PRIVATE KEY", der)
	return key
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	harness.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
