package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"
)

// soon is how long before its end a certificate is worth a warning.
const soon = 21 * 24 * time.Hour

// tls looks at the certificate of the public surface, those of the authorities
// for client certificates, and who may read the files of secrets.
func (d *doctor) tls() {
	d.secretFiles()
	t := d.c.TLS
	if t == nil {
		d.find(checkTLS, "", levelOK, "not configured: the public surface is plain HTTP", "")
		return
	}
	leaf := d.leaf()
	if leaf == nil {
		return // the configuration says what is wrong with it
	}
	d.expires("the certificate of "+t.CertFile, leaf, "renew it and start the bus again: it reads the file when it starts")
	if u, err := url.Parse(d.c.PublicURL); err == nil && u.Host != "" && leaf.VerifyHostname(u.Hostname()) != nil {
		d.find(checkTLS, "", levelWarning, "the certificate is for "+strings.Join(leaf.DNSNames, ", ")+", and public_url names "+u.Hostname(), "get one for that name, or mend public_url")
	}
	for block, rest := pem.Decode([]byte(t.ClientCA)); block != nil; block, rest = pem.Decode(rest) {
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil {
			d.expires("the authority "+ca.Subject.CommonName+" of "+t.ClientCAFile, ca, "put its new certificate beside it, before client certificates are issued under that")
		}
	}
}

// leaf returns the certificate of the public surface; nil: there is none that can
// be read.
func (d *doctor) leaf() *x509.Certificate {
	if d.c.TLS == nil {
		return nil
	}
	block, _ := pem.Decode([]byte(d.c.TLS.Cert))
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return leaf
}

func (d *doctor) expires(whose string, c *x509.Certificate, next string) {
	now, until := time.Now(), c.NotAfter.UTC().Format(time.DateOnly)
	switch {
	case now.After(c.NotAfter):
		d.find(checkTLS, "", levelFault, whose+" has expired on "+until, next)
	case now.Before(c.NotBefore):
		d.find(checkTLS, "", levelFault, whose+" is not valid before "+when(c.NotBefore), "set the clock of this machine, or wait")
	case now.Add(soon).After(c.NotAfter):
		d.find(checkTLS, "", levelWarning, fmt.Sprintf("%s expires on %s", whose, until), next)
	default:
		d.find(checkTLS, "", levelOK, whose+" is valid until "+until, "")
	}
}

// trusting is how the public surface of this configuration is called on this
// machine: its own certificate is the one that is believed, by whatever name.
func (d *doctor) trusting() *tls.Config {
	leaf := d.leaf()
	if leaf == nil {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(leaf)
	switch {
	case len(leaf.DNSNames) > 0:
		c.ServerName = strings.Replace(leaf.DNSNames[0], "*", "agentbus", 1)
	case len(leaf.IPAddresses) > 0:
		c.ServerName = leaf.IPAddresses[0].String()
	}
	return c
}

// secretFiles looks at who may read the files that hold secrets.
func (d *doctor) secretFiles() {
	if runtime.GOOS == "windows" { // modes say nothing there
		return
	}
	for _, s := range d.c.Settings() {
		public := strings.HasSuffix(s.Key, "cert_file") || strings.HasSuffix(s.Key, "ca_file")
		if !strings.HasSuffix(s.Key, "_file") || public || s.Value == "" {
			continue
		}
		info, err := os.Stat(s.Value)
		if err == nil && info.Mode()&0o007 != 0 {
			d.find(checkTLS, s.Key, levelWarning, "everybody on this machine may read "+s.Value+", which holds a secret", "chmod 600 "+s.Value)
		}
	}
}
