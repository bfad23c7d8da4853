package engine

import (
	"log/slog"
	"testing"
	"time"
)

// machine is a clock that can be set, and what passes whatever it shows.
type machine struct {
	passed time.Duration
	set    time.Duration // how far it was set
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (m *machine) wall() time.Time { return noon.Add(m.passed + m.set) }

const day = 24 * time.Hour

// TestClock: what the store thinks of a clock, from a start and over what happens
// then.
func TestClock(t *testing.T) {
	type look struct {
		after  time.Duration // since the look before
		set    time.Duration // the clock, by so much since then
		accept bool
		// What is wanted: whether it is in doubt, and how far off from what has passed
		// since noon the two times are.
		doubted        bool
		latest, agreed time.Duration
	}
	for _, c := range []struct {
		name  string
		seen  time.Duration // before noon; the clock shows noon at the start
		looks []look
	}{
		{"nothing was seen", -1, []look{{}, {after: day}}},
		{"a quick restart", time.Minute, []look{{}, {after: day}}},
		{"off for a night", 20 * time.Hour, []look{{}}},
		{"off for a month", 30 * day, []look{
			{doubted: true, agreed: -30 * day},
			{after: 59 * time.Minute, doubted: true, agreed: -30 * day},
			{after: time.Minute},
			{after: day},
		}},
		{"ten years ahead, put right", 3650 * day, []look{
			{doubted: true, agreed: -3650 * day},
			{after: 30 * time.Minute, set: -3650 * day, latest: -3650 * day, agreed: -3650 * day},
			{after: 2 * time.Hour, latest: -3650 * day, agreed: -3650 * day},
		}},
		{"ten years ahead, set about", 3650 * day, []look{
			{doubted: true, agreed: -3650 * day},
			{after: 50 * time.Minute, set: -365 * day, doubted: true, latest: -365 * day, agreed: -3650 * day},
			{after: 50 * time.Minute, doubted: true, latest: -365 * day, agreed: -3650 * day},
			{after: 10 * time.Minute, latest: -365 * day, agreed: -365 * day},
		}},
		{"a month, accepted", 30 * day, []look{{doubted: true, agreed: -30 * day}, {after: time.Second, accept: true}, {after: day}}},
		{"a day back", -day, []look{
			{doubted: true, latest: day},
			{after: 59 * time.Minute, doubted: true, latest: day},
			{after: time.Minute, latest: day}, // believed, but nothing comes back to life
			{after: 2 * day, latest: day},
		}},
		{"a day back, put right", -day, []look{{doubted: true, latest: day}, {after: time.Minute, set: day, latest: day, agreed: day}}},
		{"a day back, accepted", -day, []look{{doubted: true, latest: day}, {accept: true}}},
		{"a minute back", -time.Minute, []look{{latest: time.Minute}, {after: day, latest: time.Minute}}},
		{"set while it runs", time.Minute, []look{
			{},
			{after: time.Hour, set: 59 * time.Minute, latest: 59 * time.Minute, agreed: 59 * time.Minute},
			{after: time.Hour, set: day, doubted: true, latest: day + 59*time.Minute, agreed: 59 * time.Minute},
			{after: time.Hour, latest: day + 59*time.Minute, agreed: day + 59*time.Minute},
			{after: time.Hour, set: -2 * time.Hour, doubted: true, latest: day + 59*time.Minute, agreed: day - 61*time.Minute},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{}
			clock := clock{wall: m.wall, passed: func() time.Duration { return m.passed }, logger: slog.New(slog.DiscardHandler)}
			seen := noon.Add(-c.seen)
			if c.seen == -1 {
				seen = time.Time{}
			}
			clock.start(seen)
			for i, l := range c.looks {
				m.passed += l.after
				m.set += l.set
				if l.accept {
					clock.accept()
				}
				latest, agreed := clock.latest().Sub(noon.Add(m.passed)), clock.agreed().Sub(noon.Add(m.passed))
				if doubted := clock.doubted != (moment{}); doubted != l.doubted || latest != l.latest || agreed != l.agreed {
					t.Errorf("look %d: in doubt %t, latest %v, agreed %v, not %t, %v, %v", i, doubted, latest, agreed, l.doubted, l.latest, l.agreed)
				}
			}
		})
	}
}
