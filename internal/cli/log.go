package cli

import (
	"github.com/spf13/cobra"
)

// logCommand is for the log of a running daemon.
func logCommand() *cobra.Command {
	c := &cobra.Command{Use: "log", Short: "The log of what this daemon signs (for its operator, while it runs)",
		Long: `The log of what this daemon signs about archives: every statement and every attestation is an entry, in order, under a signed
checkpoint that others can read at /log/checkpoint.

A daemon stops signing when anything says that its store is not the newest one that its keys were used with: what it signs could
contradict what it has signed before. "witan log show" says why.`}
	data := dataFlag(c)
	do := func(use, short, long, method, path string) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				raw, err := operator(cmd.Context(), *data, method, path, nil)
				if err != nil {
					return err
				}
				return indented(cmd.OutOrStdout(), raw)
			}}
	}
	c.AddCommand(
		do("show", "Show how large the log is, by which key it is signed, and whether it may grow", "", "GET", "/log"),
		do("witnesses", "Show how the witnesses of the log do: what each has cosigned, and why it has not", "", "GET", "/log/witnesses"),
		do("new", "Begin a new log under a new log key, when the store of the old one is lost", `Begin a new log under a new log key, when the store of the old one is lost.

First try to put the newest store and the file beside the key back: then nothing is lost, and this command is not needed. A new log
is another log to everybody: witnesses of the old one have to be told its new name and key, which "witan log show" prints. What was
signed before and is known to this store enters the new log again. Call it only when the old store will never run again.`, "POST", "/log/new"))
	return c
}
