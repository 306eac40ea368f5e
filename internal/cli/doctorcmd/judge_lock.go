package doctorcmd

import (
	"fmt"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/lockfile"
)

// judgeLock says of a lock who has it, and what becomes of what stands there.
// use is what the lock is wanted for.
func judgeLock(f findings, id string, i lockfile.Inspection, r credstore.Report, what, use string) {
	if i.Path == "" {
		return // it could not be looked at
	}
	judgeGuard(f, id, i)
	age, since := r.Time.Sub(i.Since), at(r.Time, i.Since)
	future := ""
	if i.Origin != lockfile.NoFile && i.Since.After(r.Time) {
		future = fmt.Sprintf("; its time lies %s in the future, so a clock was set back: look at the clock", rounded(i.Since.Sub(r.Time)))
	}
	who := holder(i.Holder)
	switch {
	case i.FileErr != nil:
		f.find(failure, id, "look at "+i.Path+" and move it aside", "%s cannot be obtained (%v)", what, i.FileErr)
	case i.Held && i.Holder.Stopped:
		since := ""
		if i.Origin != lockfile.NoFile {
			since = " since " + at(r.Time, i.Since)
		}
		f.find(failure, id, fmt.Sprintf("continue it (kill -CONT %d) or kill it", i.Holder.PID), "%s is held%s by %s, which is stopped: until it goes on or ends, every %s that needs it fails%s", what, since, who, use, future)
	case i.Held && i.Origin == lockfile.NoFile:
		f.ok(id, "%s is about to be taken or just released by %s", what, who)
	case i.Held && i.Origin == lockfile.UnderGuard && age > r.StaleAfter:
		f.find(warning, id, "wait for it, or kill it if it hangs", "%s is held since %s by %s, longer than any %s should last", what, since, who, use)
	case i.Held && i.Origin == lockfile.UnderGuard:
		level := fine
		if future != "" {
			level = warning
		}
		f.find(level, id, clockStep(future), "%s is in use since %s by %s%s", what, since, who, future)
	case i.Held:
		f.find(note, id, "nothing to do: it is broken once it is old enough", "%s waits behind a lock file of %s that does not say it is ours%s", who, since, future)
	case i.Origin == lockfile.NoFile:
		f.ok(id, "%s is free", what)
	case i.Origin == lockfile.UnderGuard && !i.Guard:
		f.find(warning, id, "never delete a guard (*.lock.guard); make sure that no process of ours runs, then go on: the next "+use+" breaks the file at once", "%s is marked as held since %s, and its guard was deleted, so that nobody can tell whether its holder lives", what, since)
	case i.Origin == lockfile.UnderGuard && i.Unsure:
		f.find(levelOf(future), id, "nothing to do: if its maker is dead the next "+use+" breaks it at once", "%s was taken %s and no process that can be seen from here holds it; one in another container may%s", what, since, future)
	case i.Origin == lockfile.UnderGuard:
		f.find(levelOf(future), id, "nothing to do: the next "+use+" breaks it at once", "the file of %s, made %s, was left behind by a process that is dead%s", what, since, future)
	case future != "":
		f.find(warning, id, fmt.Sprintf("set the clock; the next %s breaks the file after having watched it for %s", use, r.StaleAfter), "the file of %s (%s) says that it was made %s%s", what, origin(i.Origin), since, future)
	case age > r.StaleAfter:
		f.find(note, id, fmt.Sprintf("nothing to do: the next %s breaks it after having watched it for %s", use, r.StaleAfter/30), "the file of %s (%s), made %s, was left behind", what, origin(i.Origin), since)
	default:
		f.find(note, id, fmt.Sprintf("nothing to do: if it stays, it is broken at %s", i.Since.Add(r.StaleAfter).UTC().Format("15:04:05Z07:00")), "the file of %s (%s) was made %s: its maker may be at work", what, origin(i.Origin), since)
	}
}

func judgeGuard(f findings, id string, i lockfile.Inspection) {
	id = id[:len(id)-len("lock")] + "guard"
	switch {
	case i.GuardErr != nil:
		f.find(failure, id, "look at "+i.Path+".guard and move it aside while no process of ours runs", "the guard of the lock cannot be used (%v)", i.GuardErr)
	case i.Guard && i.GuardMode&0o077 != 0:
		f.find(warning, id, "nothing to do: the next use repairs it", "%s.guard has mode %04o: whoever may open it may block the lock", i.Path, i.GuardMode)
	case i.Garbled:
		f.find(note, id, "nothing to do: it is written anew by the next use", "%s.guard does not hold what we write: it counts as empty", i.Path)
	case i.Guard:
		f.ok(id, "%s.guard can be read", i.Path)
	}
}

func levelOf(future string) level {
	if future != "" {
		return warning
	}
	return note
}

func clockStep(future string) string {
	if future != "" {
		return "set the clock"
	}
	return ""
}

func holder(p lockfile.Process) string {
	switch {
	case p.PID == 0:
		return "a process that cannot be named"
	case p.Name == "":
		return fmt.Sprintf("process %d", p.PID)
	default:
		return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
	}
}

func origin(o lockfile.Origin) string {
	switch o {
	case lockfile.OtherBoot:
		return "from before the last boot, or another machine"
	case lockfile.EmptyFile:
		return "empty"
	case lockfile.Unreadable:
		return "not readable"
	case lockfile.Unmarked, lockfile.UnderGuard, lockfile.NoFile:
	}
	return "of a program that knows only the older rules"
}
