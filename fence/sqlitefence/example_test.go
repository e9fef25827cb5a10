package sqlitefence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"baton"
	"baton/fence"
	"baton/fence/sqlitefence"
)

func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	if err := sqlitefence.Migrate(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := db.ExecContext(ctx, "create table ticks (at integer)"); err != nil {
		fmt.Println(err)
		return
	}
	ledger := sqlitefence.New(db)

	// In a program this is the work that baton.Run calls; the token is the leadership's.
	tick := func(leader baton.Token, at int) error {
		return ledger.Write(ctx, "ticks", fence.Unordered(leader), func(ctx context.Context, tx sqlitefence.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into ticks values (?)", at)
			return err
		})
	}
	a := baton.Token{Group: "scheduler", Term: 1, InstanceID: "a"}
	b := baton.Token{Group: "scheduler", Term: 2, InstanceID: "b"}
	_, err = ledger.Adopt(ctx, "ticks", a)
	fmt.Println("A adopts:", err)
	fmt.Println("A ticks:", tick(a, 100))
	_, err = ledger.Adopt(ctx, "ticks", b)
	fmt.Println("B adopts:", err)
	fmt.Println("A is refused:", errors.Is(tick(a, 101), fence.ErrStale))
	// Output:
	// A adopts: <nil>
	// A ticks: <nil>
	// B adopts: <nil>
	// A is refused: true
}
