package mirror

import "github.com/witan-adp/witan/adp"

// A host may withhold what an agent said and serve the record without its envelope
// (adp.ParseServed). Such a record is taken from the host itself only: that its
// envelope ever was signed, and of which type it is, is the host's word. It is
// stored and counted as withheld, and what we hold whole already stays whole.

// checkServed is checkOne for what the host itself shows.
func checkServed(e element) checked {
	if e.err != nil {
		return checked{raw: e.raw, err: e.err}
	}
	c := checked{raw: e.raw}
	v, err := adp.ScanDepth(e.raw, adp.RecordDepth)
	if err == nil {
		c.rec, err = adp.ParseServed(v)
	}
	if err == nil && !c.rec.Redacted {
		err = c.rec.CheckSignature()
	}
	if err != nil {
		c.rec, c.err = nil, err
	}
	return c
}

// checkPage verifies a page that the host itself shows.
func (m *Mirror) checkPage(page []element) []checked {
	out := make([]checked, len(page))
	m.parallel(len(page), func(i int) { out[i] = checkServed(page[i]) })
	return out
}
