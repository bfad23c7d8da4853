package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"triphammer/server/store/internal/engine"
)

// ErrStale refuses what was decided by definitions that are not live any more (SPEC 17.2):
// another apply has been recorded since. The caller decides again.
var ErrStale = errors.New("other definitions have become live")

// Live is the apply whose definitions a factory serves: the newest that was recorded
// as applied; 0: none. The error is ErrWentBack if the database has lost a newer one.
func (s *Applies) Live(ctx context.Context, factory string) (id ApplyID, err error) {
	if err = s.Read.QueryRowContext(ctx, liveApply, factory).Scan(&id); err != nil {
		return 0, engine.Damaged(err)
	}
	return id, s.forward(factory, id)
}

const liveApply = "SELECT coalesce(max(id), 0) FROM applies WHERE factory = $1 AND outcome = 'applied'"

// live is Live as the transaction sees it. It runs on the writer, which remembers
// it: a delivery pays no statement for it.
func (s *Applies) live(tx *engine.Tx, factory string) (id ApplyID, err error) {
	if id, known := s.groups.live[factory]; known {
		return id, nil
	}
	if err := tx.Row(liveApply, []any{factory}, &id); err != nil {
		return 0, err
	}
	if err := s.forward(factory, id); err != nil {
		return id, err
	}
	s.setLive(factory, id)
	return id, nil
}

func (s *Applies) setLive(factory string, id ApplyID) {
	if s.groups.live == nil || len(s.groups.live) >= maxCached {
		s.groups.live = make(map[string]ApplyID)
	}
	s.groups.live[factory] = id
}

// isStale tells whether an apply is not the live one of its factory any more. What no apply
// decided (0) is never stale.
func (s *Applies) isStale(tx *engine.Tx, factory string, decided ApplyID) (bool, error) {
	if decided == 0 || s.unfenced {
		return false, nil
	}
	live, err := s.live(tx, factory)
	return live != decided, err
}

// notStale is the error ErrStale if isStale.
func (s *Applies) notStale(tx *engine.Tx, factory string, decided ApplyID) error {
	stale, err := s.isStale(tx, factory, decided)
	if err == nil && stale {
		err = fmt.Errorf("%s does not serve any more: %w", decided, ErrStale)
	}
	return err
}

// checkFence refuses an apply that was made while another one became live, or that uses a
// secret which was deleted meanwhile.
func (s *Applies) checkFence(tx *engine.Tx, a *Apply) error {
	if !a.Fenced || a.Outcome != applied || s.unfenced {
		return nil
	}
	live, err := s.live(tx, a.Factory)
	if errors.Is(err, ErrWentBack) {
		live, err = a.Base, s.replaces(a)
	}
	if err != nil {
		return err
	}
	if live != a.Base {
		return fmt.Errorf("the apply began when %s was live, and now it is %s: %w", orNone(a.Base), orNone(live), ErrStale)
	}
	for _, w := range a.Webhooks {
		if w.Generation == 0 {
			continue
		}
		err := tx.Row("SELECT name FROM secrets WHERE name = $1 AND generation = $2", []any{w.SecretName, w.Generation}, new(string))
		if errors.Is(err, ErrNotFound) {
			err = fmt.Errorf("the secret %s was deleted meanwhile: %w", w.SecretName, ErrStale)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func orNone(id ApplyID) string {
	if id == 0 {
		return "none"
	}
	return id.String()
}

const reportOf = "report " // and the name of a factory: the name of its report in the table meta

// SetReport keeps what the leader reports of a factory for the other servers.
func (s *Applies) SetReport(ctx context.Context, factory string, report []byte) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", reportOf+factory, string(report))
	})
}

// Reports are what the leader reported last, by factory.
func (s *Applies) Reports(ctx context.Context) (map[string][]byte, error) {
	reports := make(map[string][]byte)
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var name, report string
		err = rows.Scan(&name, &report)
		reports[strings.TrimPrefix(name, reportOf)] = []byte(report)
		return none, err
	}, "SELECT name, value FROM meta WHERE name LIKE $1", reportOf+"%")
	return reports, err
}
