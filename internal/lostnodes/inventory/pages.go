package inventory

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// pageSize is the number of objects in a page.
	pageSize = 500
	// maxRestarts limits how often one list starts again. Its pages are of one resource version, which
	// the API server keeps for about five minutes.
	maxRestarts = 3
)

// pages lists all objects of a kind, page by page, and drops each page before the next. Its pages are
// of one resource version; if that expires it starts again. begin is called at each start and returns
// the function that gets the pages.
//
// client-go's pager is not used: when its pages expire it reads everything in one response.
func pages[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), begin func() func(L)) error {
	each, restarts, token := begin(), 0, ""
	for {
		page, err := list(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
		switch {
		case apierrors.IsResourceExpired(err) && token != "":
			if restarts++; restarts > maxRestarts {
				return fmt.Errorf("the list has expired %d times before its end: %w", restarts, err)
			}
			each, token = begin(), ""
			continue
		case err != nil:
			return err
		}
		each(page)
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}
