package admin

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// A sorting is what the URL of a page says of the order of one of its tables (U3).
type sorting struct {
	path  string // of the page
	param string // that names the order
	usual string // the order that needs no name
	part  string // of the page, where the table stands; "": at its top
	q     url.Values
}

// by is the name of the order that is asked for.
func (s *sorting) by() string { return cmp.Or(s.q.Get(s.param), s.usual) }

// sortable links the columns of a table whose URL names an order. Sorted is the
// direction that a column sorts in, descending unless it says otherwise; it stays
// at the one that is in force.
func sortable(columns []console.Column, s sorting) []console.Column {
	first := url.Values{} // of the list in that order
	for name, values := range s.q {
		if name != "cursor" {
			first[name] = values
		}
	}
	for i := range columns {
		c := &columns[i]
		if c.URL == "" {
			continue
		}
		by := c.URL
		if by != s.by() {
			c.Sorted = ""
		} else {
			c.Sorted = cmp.Or(c.Sorted, "descending")
		}
		if by == s.usual {
			by = ""
		}
		c.URL = s.path + "?" + with(first, s.param, by)
		if s.part != "" {
			c.URL += "#" + s.part
		}
	}
	return columns
}

// A column is one of a table that was read whole. Its URL is the name of its order.
type column[T any] struct {
	console.Column

	order order[T]
}

// An order is one in which rows can be shown; without compare, as they were read.
type order[T any] struct {
	compare func(x, y *T) int
	rising  bool // the least comes first
}

// most is the order that begins with the most of a figure, or the latest.
func most[T any, K cmp.Ordered](of func(*T) K) order[T] {
	return order[T]{compare: func(x, y *T) int { return cmp.Compare(of(y), of(x)) }}
}

// least is the order that begins with the least of a figure, the earliest, or the
// first by name.
func least[T any, K cmp.Ordered](of func(*T) K) order[T] {
	return order[T]{compare: func(x, y *T) int { return cmp.Compare(of(x), of(y)) }, rising: true}
}

// sorted sorts rows as s asks for, those that are equal as they were, and returns
// the head of their table.
func sorted[T any](rows []T, columns []column[T], s sorting) ([]console.Column, error) {
	head, known, names := make([]console.Column, len(columns)), s.q.Get(s.param) == "", []string(nil)
	for i, c := range columns {
		head[i] = c.Column
		if c.URL == "" {
			continue
		}
		if names = append(names, c.URL); c.order.rising {
			head[i].Sorted = "ascending"
		}
		if c.URL != s.by() {
			continue
		}
		if known = true; c.order.compare != nil {
			slices.SortStableFunc(rows, func(x, y T) int { return c.order.compare(&x, &y) })
		}
	}
	if !known {
		return nil, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "this table is not sorted by that",
			Explain: &agentbus.Explain{Observed: s.q.Get(s.param), Supported: names, Next: "choose a column of the table"},
		}
	}
	return sortable(head, s), nil
}

// part returns the page of rows behind the one whose key the page before ended
// with, in whichever order they are; when that one is gone, they begin anew.
func part[T any](rows []T, p page, key func(*T) string) (shown []T, next string) {
	if p.after != "" {
		rows = rows[1+slices.IndexFunc(rows, func(row T) bool { return key(&row) == p.after }):]
	}
	if shown = rows[:min(len(rows), p.limit)]; len(shown) < len(rows) {
		next = cursor(key(&shown[len(shown)-1]))
	}
	return shown, next
}

// kept are fields that keep what a form of filters does not ask for.
func kept(q url.Values, names ...string) (fields []console.Field) {
	for _, name := range names {
		if value := q.Get(name); value != "" {
			fields = append(fields, console.Field{Name: name, Value: value, Hidden: true})
		}
	}
	return fields
}
