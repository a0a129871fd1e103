package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Every table is declared once, in tables.go. From that declaration come the
// statements of the SQL store, its TEMP triggers, the check that the migrations
// made what the code expects, and later the model store and the comparer.
// A column that is not in the declaration does not exist.

// Table is a declaration.
type Table struct {
	Name     string
	Key      []string // primary key
	Indexes  []Index
	Guarded  bool     // written only by the holder of the lease, under its epoch
	Terminal []string // values of the column "state" after which a row never changes
	Kept     bool     // rows are never deleted
	Columns  []Column // derived from the row type

	row reflect.Type
}

// Index is a declared order of a table. Its columns identify a row only
// together with the key, unless Unique.
type Index struct {
	Name    string
	Columns []string
	Unique  bool
	Where   string // SQL; only rows for which it holds are indexed
}

// Column is one column, in the order of the struct's fields.
type Column struct {
	Name     string
	Type     ColumnType
	Nullable bool
	field    int
}

// ColumnType is the storage class of a column in a STRICT table.
type ColumnType string

// The storage classes in use. Maps, slices and structs are kept as JSON text.
const (
	Text    ColumnType = "TEXT"
	Integer ColumnType = "INTEGER"
	Blob    ColumnType = "BLOB"
	JSON    ColumnType = "JSON"
)

// Query asks for rows in the order of an index, or of the key when By is "".
type Query struct {
	By    string // name of a declared index
	Equal []any  // values of its leading columns
	After []any  // only rows behind this, in the remaining columns and the direction asked for
	Desc  bool
	Limit int // how many rows at most; a query without a limit is a bug
}

// TableOf is a Table whose rows are Rs: the typed face over Reader and Tx.
type TableOf[R any] struct{ *Table }

// declare derives the columns of t from the `db` tags of R.
func declare[R any](t Table) TableOf[R] {
	t.row = reflect.TypeFor[R]()
	for i := range t.row.NumField() {
		f := t.row.Field(i)
		name := f.Tag.Get("db")
		if name == "" {
			panic(fmt.Sprintf("table %s: field %s has no db tag", t.Name, f.Name))
		}
		c := Column{Name: name, field: i}
		c.Type, c.Nullable = columnType(f.Type)
		t.Columns = append(t.Columns, c)
	}
	for _, k := range t.Key {
		t.mustHave(k)
	}
	for _, ix := range t.Indexes {
		for _, c := range ix.Columns {
			t.mustHave(c)
		}
	}
	Tables = append(Tables, &t)
	return TableOf[R]{&t}
}

func (t *Table) mustHave(name string) {
	if !slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Name == name }) {
		panic(fmt.Sprintf("table %s has no column %s", t.Name, name))
	}
}

func columnType(t reflect.Type) (ColumnType, bool) {
	switch t.Kind() {
	case reflect.Pointer:
		typ, _ := columnType(t.Elem())
		return typ, true
	case reflect.String:
		return Text, false
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64:
		return Integer, false
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return Blob, false
		}
		return JSON, false
	case reflect.Map, reflect.Struct:
		return JSON, false
	default:
		panic("no column type for " + t.String())
	}
}

// Index returns the declared index of that name; "" is the key.
func (t *Table) Index(name string) Index {
	if name == "" {
		return Index{Columns: t.Key, Unique: true}
	}
	i := slices.IndexFunc(t.Indexes, func(ix Index) bool { return ix.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("table %s has no index %q", t.Name, name))
	}
	return t.Indexes[i]
}

// ColumnList returns the names of all columns, comma separated.
func (t *Table) ColumnList() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// Values returns the columns of row (a *R) as a driver takes them: string,
// int64, []byte or nil.
func (t *Table) Values(row any) ([]any, error) {
	v := reflect.ValueOf(row).Elem()
	out := make([]any, len(t.Columns))
	for i, c := range t.Columns {
		val, err := columnValue(c, v.Field(c.field))
		if err != nil {
			return nil, fmt.Errorf("encode %s.%s: %w", t.Name, c.Name, err)
		}
		out[i] = val
	}
	return out, nil
}

func columnValue(c Column, f reflect.Value) (any, error) {
	if c.Nullable {
		if f.IsNil() {
			return nil, nil
		}
		f = f.Elem()
	}
	switch c.Type {
	case Text:
		return f.String(), nil
	case Blob:
		return f.Bytes(), nil
	case JSON:
		doc, err := json.Marshal(f.Interface())
		return string(doc), err
	}
	switch {
	case f.Kind() == reflect.Bool && f.Bool():
		return int64(1), nil
	case f.Kind() == reflect.Bool:
		return int64(0), nil
	case f.CanUint():
		return int64(f.Uint()), nil
	}
	return f.Int(), nil
}

// Fill sets row (a *R) from the columns in values: what Values returned.
func (t *Table) Fill(row any, values []any) error {
	v := reflect.ValueOf(row).Elem()
	for i, c := range t.Columns {
		if err := fillColumn(c, v.Field(c.field), values[i]); err != nil {
			return fmt.Errorf("decode %s.%s: %w", t.Name, c.Name, err)
		}
	}
	return nil
}

func fillColumn(c Column, f reflect.Value, val any) error {
	if val == nil {
		if !c.Nullable {
			return fmt.Errorf("unexpected NULL")
		}
		f.SetZero()
		return nil
	}
	if c.Nullable {
		f.Set(reflect.New(f.Type().Elem()))
		f = f.Elem()
	}
	switch val := val.(type) {
	case int64:
		return fillInt(f, val)
	case []byte:
		f.SetBytes(slices.Clone(val))
		return nil
	case string:
		if c.Type == JSON {
			f.SetZero()
			return json.Unmarshal([]byte(val), f.Addr().Interface())
		}
		f.SetString(val)
		return nil
	}
	return fmt.Errorf("unexpected %T", val)
}

func fillInt(f reflect.Value, val int64) error {
	switch {
	case f.Kind() == reflect.Bool:
		f.SetBool(val != 0)
	case f.CanUint():
		f.SetUint(uint64(val))
	case f.CanInt():
		f.SetInt(val)
	default:
		return fmt.Errorf("unexpected integer")
	}
	return nil
}

// New returns a new empty row, a *R.
func (t *Table) New() any { return reflect.New(t.row).Interface() }

// Get returns the row with that key, and whether there is one.
func (t TableOf[R]) Get(ctx context.Context, r Reader, key ...any) (row R, found bool, err error) {
	found, err = r.Get(ctx, t.Table, &row, key)
	return row, found, err
}

// Scan returns the rows that q asks for.
func (t TableOf[R]) Scan(ctx context.Context, r Reader, q Query) ([]R, error) {
	var rows []R
	err := r.Scan(ctx, t.Table, q, func(row any) error {
		rows = append(rows, *row.(*R))
		return nil
	})
	return rows, err
}

// First returns the first row that q asks for, and whether there is one.
func (t TableOf[R]) First(ctx context.Context, r Reader, q Query) (row R, found bool, err error) {
	q.Limit = 1
	rows, err := t.Scan(ctx, r, q)
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0], true, nil
}

// Count returns how many rows q asks for, at most q.Limit.
func (t TableOf[R]) Count(ctx context.Context, r Reader, q Query) (int, error) {
	return r.Count(ctx, t.Table, q)
}

// Insert adds row unless a row with its key, or with its value of a unique
// index, is there already. It says whether it did: an insert that is repeated
// because its answer was lost does nothing (S6).
func (t TableOf[R]) Insert(ctx context.Context, tx Tx, row R) (bool, error) {
	return tx.Insert(ctx, t.Table, &row)
}

// Put writes row over the one with its key, or adds it.
func (t TableOf[R]) Put(ctx context.Context, tx Tx, row R) error {
	return tx.Put(ctx, t.Table, &row)
}

// Delete removes the row with that key, if there is one.
func (t TableOf[R]) Delete(ctx context.Context, tx Tx, key ...any) error {
	return tx.Delete(ctx, t.Table, key)
}
