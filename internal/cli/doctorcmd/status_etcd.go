package doctorcmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/credstore"
)

type statusEtcd struct {
	Members []statusMember `json:"members"`
	Prefix  string         `json:"prefix"`
	Error   string         `json:"error,omitempty"` // why nothing can be read there
}

type statusMember struct {
	Endpoint string `json:"endpoint"`
	Answers  bool   `json:"answers"`
	Version  string `json:"version,omitempty"`
	Leads    bool   `json:"leads,omitempty"`
}

func statusOfEtcd(in *credstore.SharedInspection) *statusEtcd {
	if in == nil {
		return nil
	}
	out := &statusEtcd{Members: []statusMember{}, Prefix: in.Prefix}
	for _, m := range in.Members {
		out.Members = append(out.Members, statusMember{m.Endpoint, m.Err == nil, m.Version, m.Leads})
	}
	if in.Err != nil {
		out.Error = in.Err.Error()
	}
	return out
}

func (e statusEtcd) String() string {
	var versions []string
	answering := 0
	for _, m := range e.Members {
		if m.Answers {
			answering++
			versions = append(versions, m.Version)
		}
	}
	slices.Sort(versions)
	text := fmt.Sprintf("%d of %s answer, below %s", answering, many(len(e.Members), "member"), e.Prefix)
	if answering > 0 {
		text += ", version " + strings.Join(slices.Compact(versions), ", ")
	}
	if e.Error != "" {
		text += "; " + e.Error
	}
	return text
}

// addSharedLock tells of a lock in etcd that is held.
func (out *statusOutput) addSharedLock(t credstore.TargetReport) {
	if s := t.Shared; s != nil && s.Held {
		out.Locks = append(out.Locks, statusLock{Target: t.Target, Held: true, Since: moment(s.Since), PID: s.PID, Host: s.Host, LeftS: int64(s.Left / time.Second)})
	}
}
