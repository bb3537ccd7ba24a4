package config

import (
	"strings"
	"testing"
)

const (
	logVkey     = "log.example/2026+6d0b5ae2+AZav3FAdTtFZV5XfVIKFeCbW7BS4zyxpSOnU2GtCbUqX"
	witnessVkey = "witness.example/w1+973e1edd+BJav3FAdTtFZV5XfVIKFeCbW7BS4zyxpSOnU2GtCbUqX"
)

func TestWitnessesAndLogs(t *testing.T) {
	c, err := parse("f", []byte("[[witness.log]]\norigin = 'a b'\nvkey = '"+logVkey+"'\n[[log.witness]]\nurl = 'http://127.0.0.1:1/x/'\nvkey = '"+witnessVkey+"'"), Default())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil || len(c.Witness.Logs) != 1 || c.Witness.Logs[0] != (WitnessLog{"a b", logVkey}) ||
		len(c.Log.Witnesses) != 1 || c.Log.Witnesses[0] != (LogWitness{"http://127.0.0.1:1/x/", witnessVkey}) {
		t.Fatalf("%+v %+v %v", c.Witness, c.Log, err)
	}
	logs := func(l ...WitnessLog) func(*Config) { return func(c *Config) { c.Witness.Logs = l } }
	witnesses := func(w ...LogWitness) func(*Config) { return func(c *Config) { c.Log.Witnesses = w } }
	many := make([]LogWitness, 33)
	for _, tt := range []struct {
		key    string
		change func(*Config)
	}{
		{"witness.log 1: origin", logs(WitnessLog{"", logVkey})},
		{"witness.log 1: origin", logs(WitnessLog{"a\nb", logVkey})},
		{"witness.log 1: vkey", logs(WitnessLog{"a", ""})},
		{"witness.log 1: vkey", logs(WitnessLog{"a", logVkey[1:]})},
		{"witness.log 2: vkey", logs(WitnessLog{"a", logVkey}, WitnessLog{"a", logVkey})},
		{"log.witness 1: url", witnesses(LogWitness{"witness.example", witnessVkey})},
		{"log.witness 1: url", witnesses(LogWitness{"ftp://witness.example", witnessVkey})},
		{"log.witness 1: url", witnesses(LogWitness{"https://u@witness.example", witnessVkey})},
		{"log.witness 1: url", witnesses(LogWitness{"https://witness.example/?a", witnessVkey})},
		{"log.witness 1: vkey", witnesses(LogWitness{"https://witness.example", ""})},
		{"log.witness 1: vkey", witnesses(LogWitness{"https://witness.example", logVkey})},
		{"log.witness 2: vkey", witnesses(LogWitness{"https://witness.example", witnessVkey}, LogWitness{"https://w.example", witnessVkey})},
		{"log.witness", witnesses(many...)},
	} {
		c := Default()
		tt.change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), tt.key+": ") {
			t.Errorf("%s: %v", tt.key, err)
		}
	}
	for _, name := range []string{"WITAN_WITNESS_LOG", "WITAN_LOG_WITNESS_URL"} {
		if err := ApplyEnv(&c, []string{name + "=x"}); err == nil || !strings.Contains(err.Error(), "blocks of the settings file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
