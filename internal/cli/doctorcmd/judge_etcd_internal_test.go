package doctorcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
)

// fleet is a scene in which nothing is wrong and the target is kept in etcd.
func fleet() scene {
	s := well()
	member := func(n, version string) credstore.SharedMember {
		return credstore.SharedMember{Endpoint: "https://m" + n + ":2379", Version: version, CertificateEnds: noon.Add(365 * 24 * time.Hour)}
	}
	s.report.Shared = &credstore.SharedInspection{
		Prefix: "/spendonce/", Members: []credstore.SharedMember{member("0", "3.7.3"), member("1", "3.7.3"), member("2", "3.4.0")},
	}
	t := &s.report.Targets[0]
	t.Shared = &credstore.SharedTarget{Name: "the key of box", Exists: true, Size: 900}
	t.SessionSeal, t.Lock.Path = sealedBy("age"), ""
	return s
}

func TestWhatIsWrongWithEtcdIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *scene)
		want   string // "" is nothing
	}{
		"nothing": {func(*scene) {}, ""},
		"one member is away": {
			func(s *scene) { s.report.Shared.Members[1].Err = credstore.ErrShared },
			"warning etcd.member https://m1:2379 did not answer",
		},
		"all are away": {
			func(s *scene) {
				for i := range s.report.Shared.Members {
					s.report.Shared.Members[i].Err = credstore.ErrShared
				}
			},
			"error etcd.member https://m0:2379 did not answer",
		},
		"one is too old": {func(s *scene) { s.report.Shared.Members[2].Version = "3.3.27" }, "error etcd.member https://m2:2379 is etcd 3.3.27"},
		"one is full":    {func(s *scene) { s.report.Shared.Members[0].Faults = []string{"alarm:NOSPACE"} }, "error etcd.member https://m0:2379 answers and says that something is wrong: alarm:NOSPACE"},
		"clocks agree within an answer's time": {func(s *scene) {
			s.report.Shared.Members[0].Clock, s.report.Shared.Members[0].Asked = noon, noon.Add(20*time.Second)
		}, ""},
		"this clock is ahead": {func(s *scene) {
			s.report.Shared.Members[0].Clock, s.report.Shared.Members[0].Asked = noon, noon.Add(time.Hour)
		}, "warning etcd.clock this machine's clock is 1h0m0s ahead of that of https://m0:2379"},
		"this clock is behind": {func(s *scene) {
			s.report.Shared.Members[0].Clock, s.report.Shared.Members[0].Asked = noon.Add(time.Hour), noon
		}, "warning etcd.clock this machine's clock is 1h0m0s behind that of https://m0:2379"},
		"a certificate ends soon":   {func(s *scene) { s.report.Shared.Members[0].CertificateEnds = noon.Add(time.Hour) }, "warning etcd.certificate the certificate of https://m0:2379 ends"},
		"our certificate has ended": {func(s *scene) { s.report.Shared.CertificateEnds = noon.Add(-time.Hour) }, "error etcd.certificate the certificate that this machine shows"},
		"nothing can be read": {func(s *scene) {
			s.report.Shared.Err = credstore.ErrShared
			s.report.Targets[0].Err = credstore.ErrShared
		}, "error etcd.access shared store not reached"},
		"the value cannot be opened": {func(s *scene) { s.report.Targets[0].Err = credstore.ErrKey }, "error target.value key not to be had -> on a machine that can open it"},
		"the file holds one, too":    {func(s *scene) { s.report.Targets[0].Leftover = true }, "warning target.leftover"},
		"a move was begun":           {func(s *scene) { s.report.Targets[0].Moving = true }, "warning target.move"},
		"the lock is held for long": {func(s *scene) {
			s.report.Targets[0].Shared.Held, s.report.Targets[0].Shared.Since = true, noon.Add(-time.Hour)
		}, "warning target.lock"},
		"the lock is held for a time": {func(s *scene) {
			s.report.Targets[0].Shared.Held, s.report.Targets[0].Shared.Since = true, noon.Add(-time.Second)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleet()
			c.change(&s)
			if got := said(s); !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("it said:\n%s", got)
			}
		})
	}
}
