package disk

import (
	"path/filepath"
	"testing"
)

func TestParseFloor(t *testing.T) {
	const gib = 1 << 30
	for text, want := range map[string]int64{ // of a file system of 100 GiB
		"0": 0, "512MiB": 512 << 20, "2GB": 2e9,
		"1.5 GiB": gib * 3 / 2, "5%": 5 * gib, "512MiB,5%": 512 << 20, "50%, 60GiB": 50 * gib, "10TiB": 100 * gib,
	} {
		f, err := ParseFloor(text)
		if bytes, _ := f.of(Room{Total: 100 * gib}); err != nil || bytes != want {
			t.Errorf("%s: %d, %v", text, bytes, err)
		}
	}
	for _, text := range []string{"", "5", "MiB", "-1GiB", "0%", "91%", "5%,", "1e300TiB", "NaN%", "Inf", "512 mib", "5MiB%"} {
		if f, err := ParseFloor(text); err == nil {
			t.Errorf("%q is %+v", text, f)
		}
	}
}

func TestDefaultFloor(t *testing.T) {
	f, err := ParseFloor(DefaultFloor)
	if err != nil {
		t.Fatal(err)
	}
	for total, want := range map[int64]int64{12 << 20: 629145, 10 << 30: 512 << 20, 4 << 40: 512 << 20} {
		if bytes, _ := f.of(Room{Total: total}); bytes != want {
			t.Errorf("of %s: %d", Bytes(total), bytes)
		}
	}
}

// TestLevels: what was left for a worse level comes back a little later than it
// went, for bytes as for inodes.
func TestLevels(t *testing.T) {
	f, err := ParseFloor("1000MiB")
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	for name, of := range map[string]func(n int64) Room{
		"bytes":  func(n int64) Room { return Room{Free: n * mib, Total: most} },
		"inodes": func(n int64) Room { return Room{Free: most, Total: most, FreeFiles: n * 4, Files: 1 << 40} },
	} {
		w := NewWatch(f, "", "")
		for _, step := range []struct {
			free  int64
			level Level
			lacks int64
		}{
			{1001, Enough, 0},
			{999, Low, 0},
			{1200, Low, 0},
			{1251, Enough, 0},
			{1001, Enough, 0},
			{249, Critical, 63},
			{300, Critical, 12},
			{313, Low, 0},
			{260, Low, 0},
			{0, Critical, 312},
			{5000, Enough, 0},
		} {
			s := w.level(Data, of(step.free))
			unit := map[string]int64{"bytes": mib, "inodes": 4}[name]
			lacks, said := s.Lacks/unit, s.Problem() != ""
			if s.Level != step.level || lacks != step.lacks && lacks != step.lacks-1 || said != (step.level > Enough) || said && s.Inodes != (name == "inodes") {
				t.Errorf("%s: %d left is %+v: %s", name, step.free, s, s.Problem())
			}
		}
	}
	none := NewWatch(Floor{}, "", "")
	if s := none.level(Data, Room{}); s.Level != Enough {
		t.Errorf("without a floor: %+v", s)
	}
}

func TestMeasure(t *testing.T) {
	r, err := Measure(t.TempDir())
	if err != nil || r.Total <= 0 || r.Free < 0 || r.Free > r.Total {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Measure(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that is not there is measured")
	}
	if got := times(1<<63, 4096); got != most {
		t.Error(got)
	}
	for n, want := range map[int64]string{0: "0 bytes", 10 << 10: "10 KiB", 1023 << 10: "1023 KiB", 3 << 19: "1.5 MiB", 1 << 40: "1.0 TiB", 5 << 50: "5120 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"16MiB": 16 << 20, "1.5 kB": 1500, "2GB": 2e9, "": 0, "16": 0, "0MiB": 0, "-1MiB": 0, "5%": 0, "MiB": 0, "1e99TiB": 0, "NaNkB": 0} {
		if got, err := ParseSize(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}
