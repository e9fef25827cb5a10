package pgfence

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// batchRows are the rows of the last query of a batch. With them the batch ends.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	ended   bool
	err     error
}

func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *batchRows) Close() {
	r.Rows.Close()
	if !r.ended {
		r.ended = true
		r.err = r.results.Close()
	}
}

func (r *batchRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// noRows are the rows of a query that was not sent.
type noRows struct{ err error }

func (noRows) Close()                                       {}
func (r noRows) Err() error                                 { return r.err }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Next() bool                                   { return false }
func (r noRows) Scan(...any) error                          { return r.err }
func (r noRows) Values() ([]any, error)                     { return nil, r.err }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }

// firstRow is what QueryRow returns.
type firstRow struct{ rows pgx.Rows }

func (r firstRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// noResults are those of a batch that was not sent.
type noResults struct{ err error }

func (r noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r noResults) Query() (pgx.Rows, error)         { return noRows(r), r.err }
func (r noResults) QueryRow() pgx.Row                { return firstRow{noRows(r)} }
func (r noResults) Close() error                     { return r.err }
