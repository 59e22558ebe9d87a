package config

import (
	"cmp"
	"strings"

	"github.com/agentbus/agentbus"
)

// trust finds the key that this bus signs with, and what it is needed for.
func (l *loader) trust() {
	t := &l.c.Trust
	switch {
	case t.KeyEnv != "" && t.KeyFile != "":
		l.fault("trust.key_file", "the key has two sources, key_env and key_file", "remove one of them")
	case t.KeyFile != "":
		t.Key = l.keyFile("trust.key_file", t.KeyFile)
	case t.KeyEnv != "":
		text, _ := l.src.Env(t.KeyEnv)
		key, ok := hexKey(text)
		if !ok {
			l.fault("trust.key_env", "the environment variable "+t.KeyEnv+" does not hold 64 hex digits", "make them with: openssl rand -hex 32")
			break
		}
		t.Key = agentbus.NewCredential(key)
	case t.SignedHops:
		l.fault("trust.signed_hops", "there is no key to sign with", "name it with trust.key_file or trust.key_env")
	}
	if t.Issuer = strings.TrimSuffix(cmp.Or(t.Issuer, l.c.PublicURL), "/"); t.Issuer == "" && (t.KeyEnv != "" || t.KeyFile != "") {
		l.fault("trust.issuer", "nobody could find the public key", "set trust.issuer or public_url to the URL of this bus")
	}
	if text, ok := l.secretText("trust.sts", "token_env", t.STS.TokenEnv, "token_file", t.STS.TokenFile); ok {
		t.STS.Token = agentbus.NewCredential(text)
	}
	seen := map[string]bool{t.KeyID: true}
	for i := range t.FormerKeys {
		if id := t.FormerKeys[i].KeyID; seen[id] && id != "" {
			l.fault(item("trust.former_keys", i), "another key has this key_id", "give the key that signs now a key_id of its own")
		} else {
			seen[id] = true
		}
	}
	seen = map[string]bool{}
	for i := range t.Issuers {
		if name := t.Issuers[i].Issuer; seen[name] && name != "" {
			l.fault(item("trust.issuers", i), "the issuer is trusted twice", "put both into one entry")
		} else {
			seen[name] = true
		}
	}
}
