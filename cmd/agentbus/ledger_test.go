package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// billed makes a store in dir with two settled calls of alice, the second at
// its second attempt, and one of bob, and returns the arguments that name it.
func billed(t *testing.T, dir string) (args []string) {
	t.Helper()
	path := filepath.Join(dir, "agentbus.yaml")
	if err := os.WriteFile(path, []byte("store: {url: 'sqlite:"+filepath.Join(dir, "bus.db")+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Source{Path: path, Env: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	at := time.Date(2026, 3, 14, 15, 9, 26, 535_897_000, time.UTC)
	for n, payer := range []agentbus.Payer{"alice", "alice", "bob"} {
		key := agentbus.TurnKey{Payer: payer, Agent: "critic", Run: "run_a", ID: agentbus.RunID("run_a").Turn(n, "critic")}
		r := agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{TurnKey: key, Owner: "x", Began: at}}
		if n == 1 {
			got := reserved(t, s.Store(), r)
			if err := s.Store().Void(t.Context(), agentbus.Voiding{ID: got.ID, Attempt: got.Attempts, Unbilled: 50, Ended: at}); err != nil {
				t.Fatal(err)
			}
		}
		got := reserved(t, s.Store(), r)
		if err := s.Store().Settle(t.Context(), agentbus.Settlement{ID: got.ID, Attempt: got.Attempts, Cost: 1_500_000, Ended: at}); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--config", path}
}

func reserved(t *testing.T, s interface {
	Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error)
}, r agentbus.Reservation,
) agentbus.CallRecord {
	t.Helper()
	got, err := s.Reserve(t.Context(), r)
	if err != nil || got.Outcome != agentbus.OutcomeExecute {
		t.Fatal(got.Outcome, err)
	}
	return got.Call
}

// G26: what people and scripts read of the ledger.
func TestLedgerBalance(t *testing.T) {
	t.Parallel()
	args := billed(t, t.TempDir())
	code, stdout, stderr := outcome(t.Context(), append(args, "ledger", "balance")...)
	want := `PAYER  CHARGED    UNBILLED   HELD       CALLS  VOIDS  REPLAYS  REFUSALS
alice  $3.000000  $0.000050  $0.000000  2      1      0        0
bob    $1.500000  $0.000000  $0.000000  1      0      0        0
`
	if d := cmp.Diff(want, stdout); code != 0 || d != "" {
		t.Errorf("exit %d, %s (-want +got):\n%s", code, stderr, d)
	}
	_, stdout, _ = outcome(t.Context(), append(args, "ledger", "balance", "bob", "--json")...)
	var got []agentbus.Balance
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]agentbus.Balance{{Payer: "bob", Charged: 1_500_000, Calls: 1}}, got); d != "" {
		t.Errorf("as JSON (-want +got):\n%s", d)
	}
	if !strings.Contains(stdout, `"charged_micros": 1500000`) {
		t.Errorf("amounts are no integers: %s", stdout)
	}
}

// G28: an export holds every entry, in both forms, with its links.
func TestLedgerExport(t *testing.T) {
	t.Parallel()
	args := billed(t, t.TempDir())
	_, lines, stderr := outcome(t.Context(), append(args, "ledger", "export")...)
	_, table, _ := outcome(t.Context(), append(args, "ledger", "export", "--csv")...)
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v, %s", len(rows), err, stderr)
	}
	before := map[agentbus.Payer]agentbus.Digest{}
	dec := json.NewDecoder(strings.NewReader(lines))
	for _, row := range rows[1:] {
		var e agentbus.Entry
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Prev != before[e.Payer] || e.Hash != e.Sum() {
			t.Errorf("no link, or not its hash: %+v", e)
		}
		before[e.Payer] = e.Hash
		text, err := e.Hash.MarshalText()
		want := []string{
			string(e.Payer), digits(e.Seq), string(e.Kind), digits(e.Call), digits(int64(e.Attempt)), row[5], e.Agent, string(e.Run), string(e.Turn),
			digits(int64(e.Amount)), e.Amount.USD(), digits(int64(e.Unbilled)), e.Unbilled.USD(), "2026-03-14T15:09:26.535897Z", row[14], string(text),
		}
		if d := cmp.Diff(want, row); err != nil || d != "" {
			t.Errorf("%v (-JSON +CSV):\n%s", err, d)
		}
	}
	if _, one, _ := outcome(t.Context(), append(args, "ledger", "export", "--payer", "bob")...); !strings.HasPrefix(one, `{"payer":"bob","seq":1,"kind":"charge"`) || strings.Count(one, "\n") != 1 {
		t.Errorf("of one payer: %s", one)
	}
}

// G28: verify ends with 1 and names the first bad entry.
func TestLedgerVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := append(billed(t, dir), "ledger", "verify")
	if code, stdout, stderr := outcome(t.Context(), args...); code != 0 || stdout != "the ledger is in order: 4 entries of 2 payers, $4.500000 charged\n" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "bus.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE entries SET amount = 1 WHERE payer = 'alice' AND seq = 3"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := outcome(t.Context(), args...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "entry 3 of alice is not what it must be (call 2, critic, run_a.t1.critic)") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = outcome(t.Context(), append(args, "--json")...)
	var v agentbus.LedgerVerdict
	if err := json.NewDecoder(bytes.NewReader([]byte(stdout))).Decode(&v); code != 1 || err != nil || v.Bad == nil || v.Bad.Seq != 3 {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
}

// G28: who holds an export alone can verify it.
func TestLedgerVerifyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := billed(t, dir)
	_, lines, _ := outcome(t.Context(), append(args, "ledger", "export")...)
	verify := func(export string) (int, string) {
		file := filepath.Join(dir, "export.jsonl")
		if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := outcome(t.Context(), "ledger", "verify", "--file", file)
		return code, stdout + stderr
	}
	if code, said := verify(lines); code != 0 || said != "the ledger is in order: 4 entries of 2 payers, $4.500000 charged\n" {
		t.Errorf("exit %d: %s", code, said)
	}
	if code, _, stderr := outcome(t.Context(), "ledger", "verify", "--file", dir); code != 2 || !strings.Contains(stderr, "cannot be read\n  why: is a directory\n") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	first, rest, _ := strings.Cut(lines, "\n")
	for what, export := range map[string]string{
		"an amount is changed":    strings.Replace(lines, `"amount_micros":1500000`, `"amount_micros":1`, 1),
		"an entry is missing":     rest,
		"an entry is there twice": first + "\n" + lines,
	} {
		if code, said := verify(export); code != 1 || !strings.Contains(said, "not in order") && !strings.Contains(said, "not what it must be") {
			t.Errorf("%s: exit %d: %s", what, code, said)
		}
	}
	if code, said := verify("payer,seq\n"); code != 2 || !strings.Contains(said, "--csv") {
		t.Errorf("no JSON: exit %d: %s", code, said)
	}
}
