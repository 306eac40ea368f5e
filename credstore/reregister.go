package credstore

import "context"

// reregister makes a new client where the server has forgotten ours: section
// 4, rule 8b of docs/locking.md. The session may be alive under it; if it is
// not, the server says so of the refresh token.
func (h *hold) reregister(ctx context.Context) bool {
	pin := h.settings.Pin
	if !pin.Registered || h.registered || h.src.cfg.Register == nil {
		return false
	}
	defer h.store.stage("registering again at the server of %s", h.src.cfg.Target)()
	fresh, err := h.src.cfg.Register(ctx, pin)
	if err != nil {
		h.warn("the server of %s has forgotten this client and did not register it again: %v", h.src.cfg.Target, err)
		return false
	}
	h.registered = true
	h.settings.Pin.ClientID, h.settings.Pin.ClientSecret, h.settings.Pin.ClientAuth = fresh.ClientID, fresh.ClientSecret, fresh.ClientAuth
	return true
}

// keepRegistration puts the client that was registered anew into the session,
// whatever became of the refresh: the old one is dead.
func (h *hold) keepRegistration(s *session) {
	if !h.registered {
		return
	}
	if s.Pin == nil {
		pin := h.settings.Pin
		s.Pin = &pin
		return
	}
	p := h.settings.Pin
	s.Pin.ClientID, s.Pin.ClientSecret, s.Pin.ClientAuth = p.ClientID, p.ClientSecret, p.ClientAuth
}
