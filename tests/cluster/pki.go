package main

import (
	"crypto"
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
	"time"
)

// authority signs the serving and the client certificates of one cluster.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pki names the files a cluster's credentials are kept in.
type pki struct {
	ca                      string // signs everything below
	serverCert, serverKey   string
	clientCert, clientKey   string // user admin-cert in group system:masters
	signingKey, verifyKey   string // for service account tokens
	caPEM, certPEM, privPEM []byte // ca, clientCert and clientKey, for kubeconfigs
}

func newPKI(dir string) (*pki, error) {
	file := func(name string) string { return filepath.Join(dir, name) }
	p := &pki{
		ca:         file("ca.crt"),
		serverCert: file("server.crt"), serverKey: file("server.key"),
		clientCert: file("admin.crt"), clientKey: file("admin.key"),
		signingKey: file("sa.key"), verifyKey: file("sa.pub"),
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	ca := &authority{key: key}
	ca.cert, err = ca.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "judge-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, key.Public())
	if err != nil {
		return nil, err
	}
	p.caPEM = block("CERTIFICATE", ca.cert.Raw)
	if err := os.WriteFile(p.ca, p.caPEM, 0o600); err != nil {
		return nil, err
	}
	_, _, err = ca.issue(p.serverCert, p.serverKey, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	p.certPEM, p.privPEM, err = ca.issue(p.clientCert, p.clientKey, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin-cert", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	return p, p.writeServiceAccountKeys()
}

func (p *pki) writeServiceAccountKeys() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.signingKey, block("PRIVATE KEY", private), 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.verifyKey, block("PUBLIC KEY", public), 0o600)
}

// issue writes a new key and a certificate for it, made after template.
func (a *authority) issue(certFile, keyFile string, template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	cert, err := a.sign(template, key.Public())
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM, keyPEM = block("CERTIFICATE", cert.Raw), block("PRIVATE KEY", private)
	if err := os.WriteFile(certFile, certPEM, 0o600); err != nil {
		return nil, nil, err
	}
	return certPEM, keyPEM, os.WriteFile(keyFile, keyPEM, 0o600)
}

// sign completes template and signs it; an authority without a certificate yet
// signs its own.
func (a *authority) sign(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour) // clocks of test machines jump
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
