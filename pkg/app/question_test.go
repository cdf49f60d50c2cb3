package app

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a question that counts how often it is asked, and answers when it is let.
func slow() (q *question[int], let chan struct{}, asked *atomic.Int32) {
	let, asked = make(chan struct{}), new(atomic.Int32)
	q = &question[int]{
		ask: func() int {
			n := asked.Add(1)
			<-let
			return int(n)
		},
		fresh:    func(int) time.Duration { return 5 * time.Second },
		patience: 30 * time.Second,
		running:  &sync.WaitGroup{},
	}
	return q, let, asked
}

// ask asks and waits for half a second.
func ask(q *question[int]) (int, standing) {
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
		if n, is := ask(q); n != 1 || is != answered || asked.Load() != 1 {
			t.Errorf("a fresh answer is %d (%d), and was asked for %d times; want it told again", n, is, asked.Load())
		}
		time.Sleep(time.Millisecond)
		go func() { let <- struct{}{} }()
		if n, is := ask(q); n != 2 || is != answered {
			t.Errorf("after that it is %d (%d); want it asked anew", n, is)
		}
	})
}

func TestAQuestionThatHangsHoldsNobodyLongerThanHeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, let, asked := slow()
		began := time.Now()
		if n, is := ask(q); is != awaited {
			t.Errorf("answered %d (%d); want that there is no answer yet", n, is)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		let <- struct{}{}
		synctest.Wait()
		if n, is := ask(q); n != 1 || is != answered {
			t.Errorf("when it ended: %d (%d); want its answer", n, is)
		}

		time.Sleep(6 * time.Second)
		if n, is := ask(q); n != 1 || is != answered {
			t.Errorf("while the next one hangs: %d (%d); want the last answer", n, is)
		}
		time.Sleep(30 * time.Second)
		if n, is := ask(q); is != hanging {
			t.Errorf("when it has hung for long: %d (%d); want that the last answer does not count any more", n, is)
		}
		if asked.Load() != 2 {
			t.Errorf("it was asked %d times; want 2: one at a time", asked.Load())
		}
		let <- struct{}{}
	})
}

func TestTheLastAnswerStandsHoweverLongNobodyHasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, let, _ := slow()
		go func() { let <- struct{}{} }()
		ask(q)
		time.Sleep(time.Hour)
		if n, is := ask(q); n != 1 || is != answered {
			t.Errorf("asked anew after an hour, by a question that takes long: %d (%d); want the last answer", n, is)
		}
		let <- struct{}{}
	})
}
