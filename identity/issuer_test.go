package identity_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus/identity"
)

// A line leads to an issuer whose card can be unreadable for a while.
type line struct {
	mu    sync.Mutex
	down  bool
	tries int
	now   time.Time
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tries++; l.down {
		return nil, errors.New("down")
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r)
}

// C22: an issuer that cannot be read is asked again after a while, and not for
// every token that leads there; a caller that leaves does not stop it being read
// for the others.
func TestC22AnIssuerThatIsDown(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	l := &line{down: true, now: at}
	var log strings.Builder
	v, err := identity.NewEvidence(identity.EvidenceConfig{
		Issuers: []identity.TrustedIssuer{{Issuer: s.url, Methods: []string{"urn:slack:signed"}, Assurance: []string{"platform"}, SubjectPrefixes: []string{"slack:T1/"}}},
		Client:  &http.Client{Transport: l}, Proofs: &proofs{}, Logger: logTo(&log), Now: func() time.Time { return l.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	one, err := json.Marshal([]any{s.attests().item(t)})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := v.Verify(t.Context(), one, forCritic); err == nil {
				t.Error("it counts without a key")
			}
		})
	}
	all.Wait()
	if l.tries != 1 || !strings.Contains(log.String(), "code=key_fetch_failed") {
		t.Errorf("asked %d times: %s", l.tries, log.String())
	}
	l.down, l.now = false, at.Add(time.Minute)
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := v.Verify(left, one, forCritic); err != nil {
		t.Errorf("when it is back: %v, %s", err, log.String())
	}
	if _, err := v.Verify(t.Context(), one, forCritic); err == nil || l.tries != 2 {
		t.Errorf("again: %v, asked %d times", err, l.tries)
	}
}

// X18: a header that two readers could read differently is none, and nothing is
// fetched for it.
func TestX18TwinsInTheHeader(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	for _, more := range []string{`"alg":"none"`, `"Alg":"none"`, `"typ":"JWT"`, `"kid":"https://evil.example#k1"`} {
		a := s.attests()
		item := a.item(t)
		head := `{` + more + `,"alg":"EdDSA","typ":"mentionable-identity-evidence+jwt","kid":"` + s.url + `#k1"}`
		_, rest, _ := strings.Cut(attest(t, a.key, a.header, a.claims), ".")
		item["proof"] = object{"type": "signed-attestation", "value": base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + rest}
		raw, err := json.Marshal([]any{item})
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		if _, err := s.verifier(t, &proofs{}, &log, at).Verify(t.Context(), raw, forCritic); err == nil || s.asked() > 0 || !strings.Contains(log.String(), "code=malformed") {
			t.Errorf("%s: %v, asked %d times: %s", more, err, s.asked(), log.String())
		}
	}
}
