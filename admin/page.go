package admin

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/agentbus/agentbus"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// A list is a page of a list.
type list[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next,omitempty"` // cursor of the page behind it; "" on the last one
}

// A page says which part of a list was asked for.
type page struct {
	limit int
	after string // the last item of the page before; "": from the beginning
}

// numberedPage reads which part of a list with numbered places is asked for; more
// are its other parameters.
func numberedPage(r *http.Request, more ...string) (limit int, after int64, q url.Values, err error) {
	p, q, err := pageOf(r, more...)
	if err != nil {
		return 0, 0, q, err
	}
	after, err = p.number(0)
	return p.limit, after, q, err
}

// query returns the parameters of a request. It refuses one that is not among
// the known, or comes twice: a misspelt filter would show what was not meant.
func query(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("the query cannot be read", "escape its values")
	}
	for name, values := range q {
		if !slices.Contains(known, name) || len(values) != 1 {
			return nil, &agentbus.Error{
				Code: agentbus.CodeInvalidRequest, Message: "the query has a parameter that is not known here, or has it twice",
				Explain: &agentbus.Explain{Observed: name, Supported: known, Next: "leave it out"},
			}
		}
	}
	return q, nil
}

// pageOf reads limit and cursor; more are the other parameters of the list.
func pageOf(r *http.Request, more ...string) (p page, q url.Values, err error) {
	if q, err = query(r, append(more, "limit", "cursor")...); err != nil {
		return p, nil, err
	}
	p.limit = defaultLimit
	if text := q.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > maxLimit {
			return p, nil, &agentbus.Error{
				Code: agentbus.CodeInvalidRequest, Message: "limit must be a number from 1 to " + strconv.Itoa(maxLimit),
				Explain: &agentbus.Explain{Limit: maxLimit, Next: "page with cursor"},
			}
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("cursor"))
	if err != nil {
		return p, nil, badCursor()
	}
	p.after = string(after)
	return p, q, nil
}

func badCursor() error {
	return invalid("this is no cursor of this list", "send next of the page before as it came, or leave it out")
}

// number returns the place that the page begins behind, of a list with
// numbered places; before is that of its beginning.
func (p page) number(before int64) (int64, error) {
	if p.after == "" {
		return before, nil
	}
	n, err := strconv.ParseInt(p.after, 10, 64)
	if err != nil {
		return 0, badCursor()
	}
	return n, nil
}

func cursor(after string) string { return base64.RawURLEncoding.EncodeToString([]byte(after)) }

// cut returns the page of items behind after, at most limit of them. The items
// come in the order of their places; i counts them from 0.
func cut[T any, K cmp.Ordered](items iter.Seq2[T, error], limit int, after K, place func(i int, item T) K) (list[T], error) {
	l := list[T]{Data: []T{}}
	i, last := 0, after
	for item, err := range items {
		if err != nil {
			return list[T]{}, err
		}
		at := place(i, item)
		if i++; at <= after {
			continue
		}
		if len(l.Data) == limit {
			l.Next = cursor(fmt.Sprint(last))
			break
		}
		l.Data, last = append(l.Data, item), at
	}
	return l, nil
}

// all yields items that were read already.
func all[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// ordinal is the place of an item in a list that only grows at its end.
func ordinal[T any](i int, _ T) int64 { return int64(i) + 1 }

// amount is a member of a JSON object that holds money. Inside a string its
// quotes would have backslashes.
var amount = regexp.MustCompile(`"([a-z_]+)_micros":(-?[0-9]+)`)

// withUSD puts a decimal of dollars beside every amount of micros.
func withUSD(body []byte) []byte {
	return amount.ReplaceAllFunc(body, func(member []byte) []byte {
		m := amount.FindSubmatch(member)
		n, err := strconv.ParseInt(string(m[2]), 10, 64)
		if err != nil {
			return member // of somebody else's making
		}
		return []byte(string(member) + `,"` + string(m[1]) + `_usd":"` + agentbus.Micros(n).USD() + `"`)
	})
}

// encode returns v as the API writes it: one line of JSON, each amount in
// micros and in dollars.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return withUSD(b.Bytes()), nil
}

// write answers with v.
func write(w http.ResponseWriter, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that left is its own loss
	return nil
}

// writePage answers with a page, unless it could not be made.
func writePage[T any](w http.ResponseWriter, l list[T], err error) error {
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, l)
}
