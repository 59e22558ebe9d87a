package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A sheet is a statement that writes any number of rows at once: each column
// travels as one array.
type sheet struct {
	kinds []string // of the columns
	sql   string
}

// newSheet returns the statement that inserts into a table; columns are names
// with the kind of each, such as "id int8, payer text".
func newSheet(table, columns, behind string) *sheet {
	s := &sheet{}
	var names, arrays []string
	for i, c := range strings.Split(columns, ",") {
		name, kind, _ := strings.Cut(strings.TrimSpace(c), " ")
		names = append(names, name)
		s.kinds = append(s.kinds, kind)
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, kind))
	}
	list := strings.Join(names, ", ")
	s.sql = fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) given (%s) %s", table, list, list, strings.Join(arrays, ", "), list, behind)
	return s
}

// replacing returns what makes a sheet overwrite the rows of the same key.
func replacing(key, columns string) string {
	var sets []string
	for c := range strings.SplitSeq(columns, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(c), " ")
		if !strings.Contains(", "+key+",", ", "+name+",") {
			sets = append(sets, name+" = excluded."+name)
		}
	}
	return "ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(sets, ", ")
}

// rows are what a sheet writes, column by column.
type rows struct {
	sheet *sheet
	cols  []any
	n     int
}

func (s *sheet) rows() *rows { return &rows{sheet: s, cols: make([]any, len(s.kinds))} }

// add adds a row. Values are string, int64, bool, []byte or nil.
func (r *rows) add(values ...any) {
	for i, v := range values {
		switch r.sheet.kinds[i] {
		case "text":
			r.cols[i] = push(r.cols[i], v, storable)
		case "int8":
			r.cols[i] = push(r.cols[i], v, same[int64])
		case "bool":
			r.cols[i] = push(r.cols[i], v, same[bool])
		case "bytea":
			b, _ := v.([]byte) // nil is NULL
			all, _ := r.cols[i].([][]byte)
			r.cols[i] = append(all, b)
		}
	}
	r.n++
}

func same[T any](v T) T { return v }

// push appends v, or NULL, to a column.
func push[T any](column, v any, as func(T) T) []*T {
	all, _ := column.([]*T)
	t, ok := v.(T)
	if !ok {
		return append(all, nil)
	}
	t = as(t)
	return append(all, &t)
}

// queue adds the statement to b unless there are no rows.
func (r *rows) queue(b *pgx.Batch) {
	if r.n > 0 {
		b.Queue(r.sheet.sql, r.cols...)
	}
}
