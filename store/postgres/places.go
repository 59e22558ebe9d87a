package postgres

import (
	"sync"

	"github.com/agentbus/agentbus"
)

// places remember what does not change: who pays which call, and which payers
// and accounts have a row.
type places struct {
	sync.Mutex

	payers map[int64]agentbus.Payer
	rows   map[string]bool
}

func (p *places) remember(call int64, payer agentbus.Payer) {
	p.Lock()
	defer p.Unlock()
	if len(p.payers) >= maxRemember {
		clear(p.payers)
	}
	p.payers[call] = payer
}

func (p *places) payer(call int64) (payer agentbus.Payer, known bool) {
	p.Lock()
	defer p.Unlock()
	payer, known = p.payers[call]
	return payer, known
}

func (p *places) know(kind, name string) {
	p.Lock()
	defer p.Unlock()
	if len(p.rows) >= maxRemember {
		clear(p.rows)
	}
	p.rows[kind+" "+name] = true
}

func (p *places) knows(kind, name string) bool {
	p.Lock()
	defer p.Unlock()
	return p.rows[kind+" "+name]
}
