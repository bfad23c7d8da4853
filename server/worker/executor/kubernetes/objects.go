package kubernetes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// objects are the objects of one kind. T is the type of an object, and L the type of a list. It
// replaces a type of client-go whose package would add 4 MB of the API server's machinery to the
// program, which every start would pay for.
type objects[T, L any] struct {
	client     rest.Interface
	resource   string // as in URLs
	namespace  string // empty: the objects are in no namespace
	parameters runtime.ParameterCodec
}

// object converts a *T or *L. All types of the API can be converted.
func object[T any](one *T) runtime.Object { return any(one).(runtime.Object) }

func (o *objects[T, L]) to(r *rest.Request) *rest.Request {
	return r.NamespaceIfScoped(o.namespace, o.namespace != "").Resource(o.resource)
}

func (o *objects[T, L]) Create(ctx context.Context, one *T, options metav1.CreateOptions) (*T, error) {
	made := new(T)
	return made, o.to(o.client.Post()).VersionedParams(&options, o.parameters).Body(object(one)).Do(ctx).Into(object(made))
}

func (o *objects[T, L]) Get(ctx context.Context, name string, options metav1.GetOptions) (*T, error) {
	one := new(T)
	return one, o.to(o.client.Get()).Name(name).VersionedParams(&options, o.parameters).Do(ctx).Into(object(one))
}

func (o *objects[T, L]) List(ctx context.Context, options metav1.ListOptions) (*L, error) {
	list := new(L)
	return list, o.to(o.client.Get()).VersionedParams(&options, o.parameters).Do(ctx).Into(object(list))
}

// Watch begins a watch. The API server ends it after options.TimeoutSeconds.
func (o *objects[T, L]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return o.to(o.client.Get()).VersionedParams(&options, o.parameters).Watch(ctx)
}

func (o *objects[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, below ...string) (*T, error) {
	one := new(T)
	return one, o.to(o.client.Patch(kind)).Name(name).SubResource(below...).VersionedParams(&options, o.parameters).Body(patch).Do(ctx).Into(object(one))
}

func (o *objects[T, L]) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return o.to(o.client.Delete()).Name(name).Body(&options).Do(ctx).Error()
}
