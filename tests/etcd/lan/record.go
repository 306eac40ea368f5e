//go:build linux

package lan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// recorder keeps the bytes of TCP connections, each direction on its own.
type recorder struct {
	mu    sync.Mutex
	on    bool
	ports []uint16
	open  map[direction]*flow // the last that had these ends
	flows []*flow
}

type direction struct{ from, to netip.AddrPort }

func (d direction) String() string { return fmt.Sprintf("%v to %v", d.from, d.to) }

// flow is what was sent in one direction, in order, whatever the order in
// which packets came and however often.
type flow struct {
	direction

	first uint32 // sequence number of the first byte
	bytes []byte
}

// Record keeps, from now on, the bytes of each TCP connection between two
// hosts that has one of the ports on either end; of every connection, if none
// is named.
func (l *LAN) Record(ports ...uint16) {
	l.record.mu.Lock()
	defer l.record.mu.Unlock()
	l.record.on, l.record.ports = true, ports
	l.record.open = map[direction]*flow{}
}

// Recorded is what was kept so far, under names like
// "192.0.2.14:40312 to 192.0.2.11:2379". It suits as the Outputs of a search
// by package canary. A connection is in it if its beginning was recorded.
func (l *LAN) Recorded() map[string][]byte {
	l.record.mu.Lock()
	defer l.record.mu.Unlock()
	all := map[string][]byte{}
	for _, f := range l.record.flows {
		name := f.String()
		for all[name] != nil {
			name += " again"
		}
		all[name] = slices.Clone(f.bytes)
	}
	return all
}

const (
	protocolTCP = 6
	tcpHeader   = 20
	flagSYN     = 2
)

// packet takes note of an IPv4 packet.
func (r *recorder) packet(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on || p[9] != protocolTCP {
		return
	}
	ip := int(p[0]&0xf) * 4
	if total := int(binary.BigEndian.Uint16(p[2:])); total <= len(p) {
		p = p[:total]
	}
	if len(p) < ip+tcpHeader {
		return
	}
	tcp := p[ip:]
	data := tcp[min(int(tcp[12]>>4)*4, len(tcp)):]
	d := direction{
		from: netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[12:16])), binary.BigEndian.Uint16(tcp)),
		to:   netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[16:20])), binary.BigEndian.Uint16(tcp[2:])),
	}
	if !r.wants(d) {
		return
	}
	seq := binary.BigEndian.Uint32(tcp[4:])
	if tcp[13]&flagSYN != 0 {
		r.begin(d, seq+1)
		return
	}
	if f := r.open[d]; f != nil {
		f.put(int(int32(seq-f.first)), data)
	}
}

// stream begins what a relay adds to, nil if that is not to be recorded.
func (r *recorder) stream(d direction) *flow {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on || !r.wants(d) {
		return nil
	}
	delete(r.open, d)
	return r.begin(d, 0)
}

func (r *recorder) add(f *flow, data []byte) {
	if f == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.put(len(f.bytes), data)
}

// begin notes a new connection, unless the packet that begins it was sent
// before and came again.
func (r *recorder) begin(d direction, first uint32) *flow {
	if f := r.open[d]; f != nil && f.first == first {
		return f
	}
	f := &flow{direction: d, first: first}
	r.open[d] = f
	r.flows = append(r.flows, f)
	return f
}

// put places data at its offset; a gap before it is filled when the packet
// that was late or lost comes.
func (f *flow) put(at int, data []byte) {
	if at < 0 || len(data) == 0 { // a probe, or only a word of having heard
		return
	}
	if end := at + len(data); end > len(f.bytes) {
		f.bytes = append(f.bytes, make([]byte, end-len(f.bytes))...)
	}
	copy(f.bytes[at:], data)
}

func (r *recorder) wants(d direction) bool {
	return len(r.ports) == 0 || slices.Contains(r.ports, d.from.Port()) || slices.Contains(r.ports, d.to.Port())
}
