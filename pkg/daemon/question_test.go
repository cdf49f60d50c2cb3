package daemon

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a question that counts how often it is asked, and answers when it is let.
func slow() (q *question[int], let chan struct{}, asked *int) {
	let, asked = make(chan struct{}), new(int)
	q = &question[int]{
		ask: func() int {
			*asked++
			n := *asked
			<-let
			return n
		},
		fresh:    func(int) time.Duration { return 5 * time.Second },
		patience: 30 * time.Second,
		running:  &sync.WaitGroup{},
	}
	return q, let, asked
}

// ask asks and waits for half a second.
func ask(q *question[int]) (int, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	q.refresh()
	return q.answer(ctx)
}

func TestManyWhoAskShareOneAnswerAsLongAsItIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, let, asked := slow()
		answers := make(chan int, 10)
		for range cap(answers) {
			go func() {
				n, _ := ask(q)
				answers <- n
			}()
		}
		synctest.Wait()
		let <- struct{}{}
		for range cap(answers) {
			if n := <-answers; n != 1 {
				t.Errorf("one was answered %d; want the first answer for all", n)
			}
		}
		time.Sleep(5*time.Second - time.Millisecond)
		if n, ok := ask(q); n != 1 || !ok || *asked != 1 {
			t.Errorf("a fresh answer is %d, %v, and was asked for %d times; want it told again", n, ok, *asked)
		}
		time.Sleep(time.Millisecond)
		go func() { let <- struct{}{} }()
		if n, ok := ask(q); n != 2 || !ok {
			t.Errorf("after that it is %d, %v; want it asked anew", n, ok)
		}
	})
}

func TestAQuestionThatHangsHoldsNobodyLongerThanHeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, let, asked := slow()
		began := time.Now()
		if n, ok := ask(q); ok {
			t.Errorf("answered %d; want that there is no answer yet", n)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		let <- struct{}{}
		synctest.Wait()
		if n, ok := ask(q); n != 1 || !ok {
			t.Errorf("when it ended: %d, %v; want its answer", n, ok)
		}

		time.Sleep(6 * time.Second)
		if n, ok := ask(q); n != 1 || !ok {
			t.Errorf("while the next one hangs: %d, %v; want the last answer", n, ok)
		}
		time.Sleep(30 * time.Second)
		if n, ok := ask(q); ok {
			t.Errorf("when it has hung for long: %d; want that the last answer does not count any more", n)
		}
		if *asked != 2 {
			t.Errorf("it was asked %d times; want 2: one at a time", *asked)
		}
		let <- struct{}{}
	})
}
