package admin

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

func (a *API) listKeys(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	after, err := p.number(0)
	if err != nil {
		return err
	}
	keys, err := a.cfg.Keys.Keys(r.Context())
	if err != nil {
		return err
	}
	l, err := cut(all(keys), p.limit, after, ordinal)
	return writePage(w, l, err)
}

// A keyRequest asks for a key.
type keyRequest struct {
	ID         string                 `json:"id"`
	Role       agentbus.PrincipalRole `json:"role"` // "": user
	InterAgent bool                   `json:"inter_agent"`
}

// A newKey is the only answer that ever holds a secret.
type newKey struct {
	agentbus.APIKey

	Secret string `json:"secret"`
}

func (a *API) createKey(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	var k keyRequest
	if err := read(w, r, &k); err != nil {
		return err
	}
	switch {
	case !identity.ValidID(k.ID):
		return invalid("id is not the id of a principal", "use 1 to 128 letters, digits and . _ - : /")
	case k.Role == "":
		k.Role = agentbus.PrincipalUser
	case k.Role != agentbus.PrincipalUser && k.Role != agentbus.PrincipalAdmin:
		return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "there is no such role", Explain: &agentbus.Explain{Supported: []string{"user", "admin"}}}
	}
	secret, key := identity.NewKey(agentbus.Principal{ID: k.ID, Role: k.Role, InterAgent: k.InterAgent}, time.Now())
	x := requestOf(r)
	x.object, x.did = k.ID+" "+key.Handle+" "+string(k.Role), deed{kind: "key.create", object: key.Handle, detail: k.ID + " " + string(k.Role)}
	if err := a.cfg.Keys.CreateKey(r.Context(), key); err != nil {
		return err
	}
	return write(w, http.StatusCreated, newKey{key, secret.Reveal()}) //nolint:forbidigo // its owner sees it once, here (G4)
}

// read reads the body of a request into v. What is not known is refused, not
// ignored.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &agentbus.Error{
			Code: agentbus.CodeUnsupportedContent, Message: "the body is not said to be JSON",
			Explain: &agentbus.Explain{Supported: []string{"application/json"}, Next: "send Content-Type: application/json"},
		}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, e := d.Token(); !errors.Is(e, io.EOF) {
			err = errors.New("more than one value")
		}
	}
	if e := tooLarge(err); e != nil {
		return e
	}
	if err != nil {
		return &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "the body is not what this route reads", Err: err,
			Explain: &agentbus.Explain{Next: "see GET /openapi.json"},
		}
	}
	return nil
}

// tooLarge is what is answered to a body of which err says that it is; nil: it
// does not.
func tooLarge(err error) error {
	e, ok := errors.AsType[*http.MaxBytesError](err)
	if !ok {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeRequestTooLarge, Message: "the body is too large",
		Explain: &agentbus.Explain{Limit: e.Limit, Next: "send less"},
	}
}

const (
	maxBody = 64 << 10
	maxForm = 3 * maxBody // a form writes most bytes as three
)

// A revocation is what came of revoking keys.
type revocation struct {
	Revoked int `json:"revoked"` // keys that were in force until now
}

func (a *API) revokeKey(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	handle := r.PathValue("handle")
	x := requestOf(r)
	x.object, x.did.kind = identity.Handle(handle), "key.revoke" // somebody may have pasted the whole secret
	n, err := a.cfg.Keys.RevokeKey(r.Context(), handle)
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("key in force of that handle or principal", "see GET /admin/v1/keys; a key of the configuration is revoked by taking it out there")
	}
	return write(w, http.StatusOK, revocation{n})
}
