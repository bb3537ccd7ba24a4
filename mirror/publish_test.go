package mirror

import (
	"sync/atomic"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// A peer that asks for a room while its head is being signed may get a newer one. What is
// then published fits that one: a message that does not is held against its sender.
func TestHeadThatIsOvertaken(t *testing.T) {
	b := newBus(t)
	signing, goOn := make(chan struct{}), make(chan struct{})
	h := newLiveHost(t, 4, func(o *Options) {
		sign, first := o.Sign, atomic.Bool{}
		o.Sign = func(typ string, payload any) (*adp.Envelope, error) {
			e, err := sign(typ, payload)
			if !first.Swap(true) {
				close(signing)
				<-goOn
			}
			return e, err
		}
	}, b.join("host"))
	s := talk(t, "room", 3)
	h.commit(s)
	<-signing
	s.say(member, "meanwhile")
	h.keep(s)
	request, err := adp.EncodeValue(syncRequest{Origin: h.origin(), RoomID: s.id, Genesis: s.recs[0].Hash, AfterSeq: 3, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.g.m.ServeRoomSync(t.Context(), "peer", request.Raw()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	until(t, "it is published", func() bool { return b.messages() == 1 })
	g := start(t, memory(t), seldom).follow(h.fakeHost).bound(h)
	if v := g.m.Validate("host", b.sent[0]); v != Accept {
		t.Errorf("a reader says %v", v)
	}
}
